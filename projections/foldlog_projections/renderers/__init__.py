"""From a view to what a provider's API accepts: one pure function for each API.

A rendering changes the form of a view, never its order or pairing: those are the fold's. What
all renderers hold:

- a view's leading system message leads the request; later ones become marked blocks of the
  user's role in their own place, so that the prefix a provider has cached stays valid;
- call ids that repeat or that the API refuses are made distinct by what came before them only;
- reasoning goes back whole, in the provider's own form, or not at all;
- a part that carries the provider's own form is sent in it, as it was (but for its id where
  that repeats, and for marks of the cache); a tool's result never is, for it is no provider's;
- content without a form in the API is named by a short text in square brackets;
- a request whose first message would not be the user's opens with a neutral one.

The rendering of a view begins with the rendering of every view whose messages are a prefix of
its own (for Anthropic: block by block, without cache breakpoints), as soon as that prefix holds
a message after the leading system message.
"""
