"""What the programs in experiments/ share; import its modules one by one.

A study is a list of tasks (`runner`) that a program fills from a preset (`study`, `bias`,
`compute`, `tune`) and that `report` turns into tables and figures.
"""
