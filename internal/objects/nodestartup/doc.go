// Package nodestartup holds the facts about NodeStartups: which are valid, which one a node follows, and how the taint
// of a node that starts says how far it is. It has no clock and no client.
//
// The taint is all that is kept of a node's start: its value names the NodeStartup and the group that starts, and its
// timeAdded is when that group began.
package nodestartup
