"""The operating system around a process: addresses, files, the service manager.

addresses       addresses of this machine: listening, advertised, free ports
fatal           the log line of an error that ends a server
hosts           host names that the system reads as numbers; pure
sd_notify       state of the service for systemd
secret_files    modes of files that contain secrets or decide which peers are trusted
"""
