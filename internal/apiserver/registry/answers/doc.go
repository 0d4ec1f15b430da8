// Package answers holds recorded answers of kube-apiserver v1.36.3 and the tests
// that compare ours with them: those of the API kinds alone, and those of a whole
// server over HTTPS. It has no code of its own.
//
// `make answers` prints a table of how many are the same, by kind. A recording is
// a gzipped file with a JSON object on each line: the path and body of a POST with
// dryRun=All and fieldValidation=Strict, the code, and the object or the error.
package answers
