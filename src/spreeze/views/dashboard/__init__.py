"""The dashboard: what a run does, live or from its folder, in a browser.

formatting, chart_data, flow: pure functions from lines of a run folder to text, points and the drawing of the flow.
charts, markup, run_view: what the page shows of one run, made once for all pages.
runs: which runs there are; one reader per run, however many pages show it.
access, server, shared_state: who may look and who may stop, the server, and what all its pages share.
process, command: the server of a run under way, and `spreeze dashboard`.
application, page, compare_tab, elements: the page, in NiceGUI's elements. No other module imports NiceGUI.
"""
