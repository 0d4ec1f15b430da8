// Package ruleset decides the packet filter rules of Services, and which of them
// change when a Service does.
//
//	Base     the chains at the hooks, and the maps that they look into; always the same
//	State    takes Services one by one and answers with the change of rules
//	State.Whole  all rules, to begin with and to begin again
//
// A packet goes through it like this (each line a chain; P is namespace/name/protocol/port):
//
//	services        address and port, or own port -> verdict
//	  in/P          the Service's address: masquerade what comes from outside
//	  ex/P          other addresses and node ports: masquerade, or stay on the node
//	    cluster/P   a client's own endpoint if it has one, else any
//	    local/P     the same among those on the node
//	      ep/P/ADDRESS/PORT   masquerade an endpoint's call to itself; remember the client; forward
//	dead            what no endpoint can take: refuse, or drop where others may answer
//
// Only the first packet of a connection comes here; the rest follows it. Every
// object has one owner, a Service, except elements of maps that two Services both
// claim (an external address): then the first by name has it.
package ruleset
