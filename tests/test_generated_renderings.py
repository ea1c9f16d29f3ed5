"""Every version of every generated history renders to requests that providers take."""

import os

from hypothesis import HealthCheck, given, settings

from foldlog_projections.fold import ContextFold
from foldlog_projections.renderers import anthropic, openai_chat, openai_responses
from tests.histories import Family, families
from tests.test_fold_agrees import state_at
from tests.validity import (
    check_anthropic,
    check_neutral,
    check_openai_chat,
    check_openai_responses,
)


@settings(
    max_examples=int(os.environ.get("FOLDLOG_EXAMPLES", "200")) // 4,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(family=families())
def test_every_version_renders_to_valid_requests(family: Family) -> None:
    for conversation in family.conversations:
        for recorded in conversation.history:
            view = ContextFold(state_at(family, conversation, recorded.version)).view()
            check_neutral(view)
            check_openai_chat(openai_chat.render(view), openai_chat.tools(view))
            check_openai_responses(openai_responses.render(view))
            check_anthropic(anthropic.render(view))
