// Package ownaddress finds out at which address the cluster reaches this machine, and notices when that becomes another
// one.
package ownaddress
