"""What the keeper needs where gevent or eventlet has replaced Python's threads and sockets."""
