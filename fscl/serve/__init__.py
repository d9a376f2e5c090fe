"""`fscl serve`: a model over HTTP, for one person on one machine first (extra `fscl[serve]`).

guard       who may ask at all; decides before anything else
app         routes, errors as JSON, security headers
service     the model, the threads that answer and change it, the tray of pictures
inference   one thread that answers all that waits
jobs        long work: progress, stop
tray, inbox pictures that were sent and not taught; those that are unknown or uncertain, grouped
page/       what a browser shows
"""
