"""The parts of a bookie process around the bookie itself.

background         garbage collection, damage reports and scrub, from start to stop
disk_gauges        metrics of disk usage
exit_codes         exit codes, and which error leads to which
http               the bookie's view and operations for its HTTP server
log_throttle       a count of repeated events, for few log lines; pure
metrics            the cells in which a bookie and its connections count
mode               writable or read-only, and why; pure
part_settings      bounds and settings of all parts, from the bookie's settings
process_context    settings, reactor, files, counters, mode and threads, given to every part
startup            replay, flush and marks at a start
status             the status file: content, and writes after changes
status_format      the bytes of the status file; pure
storage            storage, journals and disks from replay to last checkpoint
worker_calls       calls on another thread, awaited
"""
