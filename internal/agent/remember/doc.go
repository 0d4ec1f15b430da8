// Package remember keeps on the node's disk what the node knows of Services, so that
// after a restart its pods' questions for names are answered also while the control
// plane is away; and, in a file of its own, its pods with what they read from the API,
// so that they start as they were. The latter can be encrypted.
//
// A file holds a line of JSON for each object, and one at the end that says how
// many there are: a file that was cut off is told from a whole one. It is replaced
// in one step. What cannot be read is put aside, not deleted.
package remember
