"""Several Resource Managers behind one address: members of a cluster, each a whole one of its own.

`python -m weft.router` serves the client service (`proto/client.proto`) for all of them and keeps
nothing: any number of routers may stand beside each other. An application's number names its
member (`rm.settings.ManagerSettings.member`), so no table is needed. `weft.policies.members`
says which member gets a job, from what the members report; `merging` makes one answer of several;
`routing` asks. Imports the wire, the clients' requests and `weft.runtime`, and no role. Start at
`routing.Router.ask`.
"""
