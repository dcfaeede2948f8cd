"""The page: what a run does, live or from its folder.

words, series, flow: pure functions from lines of a run folder to text, points and the drawing of the flow.
charts, markup, view: what the page shows of one run, made once for all pages.
runs: which runs there are; one reader a run, however many pages look.
access, server, command: who may look, the server, and `spreeze dashboard`.
application, page, compare: the page, in NiceGUI's elements. No other module imports NiceGUI.
"""
