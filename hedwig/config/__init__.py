"""Settings of a hub: Apache's key names, in Apache's file format, as frozen values with units.

    kinds      how the text of a value is read, where `bookkeeper.config.keys` has no kind for it
    hub        HubConfig: one field per key, the table itself; what is wrong between keys
    ignored    keys that are not in the table: accepted without effect, refused, or unknown, each with its reason
    load       command line over environment over file over default; all faults in one message
    render     conf/hw_server.conf out of the table

Laid out as `bookkeeper.config`, whose parts it uses; the table of publish-subscribe clients is `hedwig.client_config`.
Invariants: those there. Importing this package loads none of these modules.
"""
