// Package plugins notices the programs that register with a node by a socket of theirs in a folder: storage drivers,
// through their registrars, and device plugins of the newer kind.
//
//	folder changes ──► look: which sockets are there ──► plan ──► register: ask who it is, hand it over, tell it
//	                                                      └────► forget: its socket is gone               how that went
//
// A plugin that cannot be taken is tried again, later and later. Without plugins there is one watch on a folder, and no
// connection.
package plugins
