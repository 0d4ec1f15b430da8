package ownaddress

import "net"

// found is what a look at the machine's routes gave.
type found struct {
	// server is the address from which packets to the API server would be sent, elsewhere that for packets to the rest of
	// the world; nil where there is no way, and for the server also where its name is not known now.
	server, elsewhere net.IP
	// held says that the machine still has the address that was chosen last.
	held bool
}

// choose returns the node's address, after last was. Without a way to the server nothing is better than an address that
// the machine still has; without any network the last one stays. The result is nil where nothing was known and nothing
// was found.
func choose(last net.IP, f found) net.IP {
	switch {
	case f.server != nil && f.server.IsGlobalUnicast():
		return f.server
	case f.server == nil && last != nil && f.held:
		return last
	case f.elsewhere != nil && f.elsewhere.IsGlobalUnicast():
		return f.elsewhere
	}
	return last
}
