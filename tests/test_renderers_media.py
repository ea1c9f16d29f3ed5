"""Images, files and other content in providers' requests."""

from typing import Any

import pytest

from foldlog_events.messages import (
    ArtifactReference,
    Blob,
    Content,
    File,
    Text,
    Uri,
    assistant,
    tool_result,
    user,
)
from tests.renderings import (
    BASE64,
    DATA_URL,
    PNG,
    WEB,
    asked,
    blocks,
    call,
    chat,
    responses,
    returned,
    said,
    text,
)


@pytest.mark.parametrize(
    ("part", "in_chat", "in_responses", "in_anthropic"),
    [
        (
            Blob(mime_type="image/png", content=PNG),
            {"type": "image_url", "image_url": {"url": DATA_URL}},
            {"type": "input_image", "detail": "auto", "image_url": DATA_URL},
            {"type": "image", "source": BASE64},
        ),
        (
            Uri(uri=DATA_URL),
            {"type": "image_url", "image_url": {"url": DATA_URL}},
            {"type": "input_image", "detail": "auto", "image_url": DATA_URL},
            {"type": "image", "source": BASE64},
        ),
        (
            Uri(uri=WEB),
            {"type": "image_url", "image_url": {"url": WEB}},
            {"type": "input_image", "detail": "auto", "image_url": WEB},
            {"type": "image", "source": {"type": "url", "url": WEB}},
        ),
        (
            Uri(uri="https://example.org/1", mime_type="image/*"),
            {"type": "image_url", "image_url": {"url": "https://example.org/1"}},
            {"type": "input_image", "detail": "auto", "image_url": "https://example.org/1"},
            {"type": "image", "source": {"type": "url", "url": "https://example.org/1"}},
        ),
        (
            File(file_id="f-1", mime_type="image/png"),
            {"type": "file", "file": {"file_id": "f-1"}},
            {"type": "input_image", "detail": "auto", "file_id": "f-1"},
            {"type": "image", "source": {"type": "file", "file_id": "f-1"}},
        ),
        (
            File(file_id="f-1"),
            {"type": "file", "file": {"file_id": "f-1"}},
            {"type": "input_file", "file_id": "f-1"},
            {"type": "document", "source": {"type": "file", "file_id": "f-1"}},
        ),
        (
            Blob(mime_type="application/pdf", content=PNG),
            {
                "type": "file",
                "file": {
                    "filename": "document.pdf",
                    "file_data": f"data:application/pdf;base64,{PNG}",
                },
            },
            {
                "type": "input_file",
                "filename": "document.pdf",
                "file_data": f"data:application/pdf;base64,{PNG}",
            },
            {"type": "document", "source": {**BASE64, "media_type": "application/pdf"}},
        ),
        (
            Uri(uri="https://example.org/a.pdf?x=1"),
            text("[content at https://example.org/a.pdf?x=1]"),
            {"type": "input_file", "file_url": "https://example.org/a.pdf?x=1"},
            {
                "type": "document",
                "source": {"type": "url", "url": "https://example.org/a.pdf?x=1"},
            },
        ),
    ],
)
def test_media(
    part: Blob | File | Uri,
    in_chat: dict[str, Any],
    in_responses: dict[str, Any],
    in_anthropic: dict[str, Any],
) -> None:
    look = Text(content="look")
    assert chat(asked(look, part))[0]["content"] == [text("look"), in_chat]
    assert responses(asked(look, part))[0]["content"][1] == in_responses
    assert blocks(asked(look, part))[1] == ("user", in_anthropic)

    history = (user("go"), assistant("", call()), returned("c1", look, part))
    assert responses(*history)[-1]["output"][1] == in_responses
    assert blocks(*history)[-1][1]["content"] == [text("look"), in_anthropic]


@pytest.mark.parametrize(
    ("part", "named"),
    [
        (Blob(mime_type="image/svg+xml", content=PNG), "[image/svg+xml, 8 bytes, not shown]"),
        (Blob(mime_type="video/mp4", content="AAAA"), "[video/mp4, 3 bytes, not shown]"),
        (Uri(uri="s3://b/a.png"), "[content at s3://b/a.png]"),
        (Uri(uri="x:" + "y" * 999, mime_type="a/b"), "[a/b at an address too long to show]"),
        (
            ArtifactReference(
                digest="sha256:" + "a" * 64, mime_type="text/csv", size=70_000, preview="day,sales"
            ),
            f"[text/csv, 70000 bytes, stored as sha256:{'a' * 64}]\nday,sales",
        ),
    ],
)
def test_what_has_no_form_is_named(part: Content, named: str) -> None:
    assert chat(asked(part)) == [{"role": "user", "content": named}]
    assert responses(asked(part)) == [{"role": "user", "content": named}]
    assert blocks(asked(part)) == [("user", text(named))]
    assert chat(user("go"), said(part))[-1] == {"role": "assistant", "content": named}
    assert blocks(user("go"), said(part))[-1] == ("assistant", text(named))


def test_audio_in_openai_chat() -> None:
    part = Blob(mime_type="audio/mpeg; rate=1", content="AAAA")
    assert chat(asked(part))[0]["content"] == [
        {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "mp3"}}
    ]


def test_images_from_tools_follow_all_results_of_the_turn_in_openai_chat() -> None:
    image = Blob(mime_type="image/png", content=PNG)
    history = (
        user("go"),
        assistant("", call("c1"), call("c2")),
        returned("c1", Text(content="plot"), image),
        tool_result("c2", "done"),
    )
    shown = [
        text("Returned by tool call c1:"),
        {"type": "image_url", "image_url": {"url": DATA_URL}},
    ]
    after = [
        {
            "role": "tool",
            "tool_call_id": "c1",
            "content": "plot\n[image/png, shown in the user message after the results]",
        },
        {"role": "tool", "tool_call_id": "c2", "content": "done"},
        {"role": "user", "content": shown},
    ]
    assert chat(*history)[2:] == after
    assert chat(*history, assistant("see"))[2:] == [*after, {"role": "assistant", "content": "see"}]
