// Package nftables applies the rules of Services to the machine, in the network
// namespace that the process is in: changes as one transaction each, and all of them
// when it begins or when something went wrong. Packets meet the old rules or the new
// ones, never a part.
//
//	apply      rules -> transactions of the kernel's packet filter, by the nft command
//	conntrack  forgets where UDP went
//	machine    what else the kernel must do so that answers find their way back
package nftables
