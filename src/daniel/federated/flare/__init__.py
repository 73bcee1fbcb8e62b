"""The round over NVIDIA FLARE: the same signed bytes as files, carried by a network.

    provision   a project for the study's roster: certificates, start-up kits, site policy
    kits        what stands in a kit: the site's own settings, its approval, its inbox and outbox
    hub         the hub's half of the exchange (runs in the FLARE server)
    site        a site's half (runs in the FLARE client)
    run         what people start: a kit's process, and one exchange

Nothing here looks into a message.  This package is the only home of nvflare.
"""
