"""Authentication of connections: who may talk to a bookie at all.

    provider.py        what a provider is, on both sides
    selection.py       the provider that a configuration names
    password_file.py   users and passwords in files
    passwords.py       salted, slow hashes of passwords; pure but for the random salt

A provider of your own is a module on the Python path: `bookieAuthProviderFactoryClass=package.module:factory` calls
`factory(settings, run_in_thread)` once in each bookie, `clientAuthProviderFactoryClass=package.module:factory` calls
`factory(settings)` once in each client. Both sides must give their provider the same `plugin_name`, which may be that
of a Java provider that speaks the same payloads.
"""
