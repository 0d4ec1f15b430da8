// Package answers holds recorded answers of kube-apiserver v1.36.3 and the test
// that compares the API kinds with them. It has no code of its own.
package answers
