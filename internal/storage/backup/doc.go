// Package backup is the file in which a whole control plane is kept: its database, its
// keys, and what a new machine must be told. It reads and writes that file and knows
// nothing of where the parts come from or go to.
//
//	everynode-backup 1 age       the first line: version, and how the rest is sealed
//	age(gzip(tar(                age-encryption.org/v1, or nothing for "plain"
//	    manifest.json            what follows, with sizes and checksums
//	    etcd.snapshot            as etcdutl takes it
//	    pki/ca.crt ...)))
//
// All of it is in standard formats, so that it can be read without this program:
//
//	tail -n +2 FILE | age -d -i KEY | tar -xz
package backup

// Path is where POST gets a backup of the running server, not encrypted. Only whoever
// may do everything gets it: it holds the keys of everything.
const Path = "/everynode/v1/backup"
