// Package why writes down why each node is where it is: for one node, each DaemonSet's verdict with all reasons; for
// one DaemonSet, its nodes grouped by verdict. It is pure: a survey goes in, a report comes out, as text for people or
// as JSON.
package why
