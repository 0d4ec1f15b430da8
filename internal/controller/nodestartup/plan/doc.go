// Package plan decides how far a node is in its start: what it waits for, when its next group begins, and when it
// opens.
//
// Each node is decided alone and from facts alone, so nothing that fails on one holds up another, and any server comes
// to the same. A node only ever goes on: from group to group, then open.
package plan
