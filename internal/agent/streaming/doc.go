// Package streaming is a node's HTTPS server: logs, exec, attach and port-forward, under the kubelet's paths.
//
//	/containerLogs/{namespace}/{pod}/{container}?follow&previous&stream and how much:
//	    tailLines&sinceSeconds&sinceTime&timestamps&limitBytes
//	/exec/{namespace}/{pod}/{container}?command&input&output&error&tty
//	/attach/{namespace}/{pod}/{container}?input&output&error&tty
//	/portForward/{namespace}/{pod}?port
//	/tunnel/{address}/{port}, which becomes a connection to a pod of the node
//	/images/pull?image&pin&always, /images/pins, to have images before pods need them
//	/pods, /stats/summary, /configz, /healthz, and the pages of metrics
//
// Who may ask for what is decided by others, before anything else is looked at. Logs are read from the runtime's
// files. The other three are passed on to the container runtime's own streaming server: SPDY as it is, and the
// WebSocket protocols that runtimes don't speak (v5 remote command, port-forward tunnels) translated to SPDY.
package streaming
