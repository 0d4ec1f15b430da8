package encryption

import "strings"

// Path is where an API server tells its administrators how what is stored is
// encrypted; a POST to RewritePath writes some objects again that are not as they
// would be written now.
const (
	Path        = "/everynode/v1/encryption"
	RewritePath = Path + "/rewrite"
)

// Marks of the Lease by which each API server tells which keys it uses.
const (
	LeaseLabel        = "everynode.io/apiserver"
	HashAnnotation    = "everynode.io/encryption-hash"
	SettledAnnotation = "everynode.io/encryption-settled"
)

// Status is what one API server says.
type Status struct {
	// File holds the keys in use, or would; Hash is of its content, empty without one.
	File string `json:"file"`
	Hash string `json:"hash"`
	// Own says that an operator has named the file, and changes it himself.
	Own bool `json:"own"`
	// Settled says that no write is under way any more that began with keys of before.
	Settled bool `json:"settled"`
	// Problem says why the file is not used as it is now.
	Problem   string     `json:"problem,omitempty"`
	Resources []Resource `json:"resources"`
}

// Resource is how the objects of one resource are stored.
type Resource struct {
	Name string `json:"name"`
	// Writes is the key of what is written now, Plain for none.
	Writes string `json:"writes"`
	// Stored counts objects by the key that they were written with.
	Stored map[string]int `json:"stored"`
}

// Rewritten is what a POST to RewritePath has done.
type Rewritten struct {
	Rewritten int `json:"rewritten"`
	Left      int `json:"left"`
}

// marker begins each value that is encrypted.
const marker = "k8s:enc:"

// KeyOf returns the name of the key that a stored value was written with, as
// PROVIDER:NAME, or Plain. Keys of the file that Everynode makes are of SecretBox.
func KeyOf(value []byte) string {
	if len(value) < len(marker) || string(value[:len(marker)]) != marker {
		return Plain
	}
	// k8s:enc:PROVIDER:VERSION:NAME:
	parts := strings.SplitN(string(value[len(marker):min(len(value), 256)]), ":", 4)
	if len(parts) < 4 {
		return "unknown"
	}
	return parts[0] + ":" + parts[2]
}

// SecretBox begins, in what KeyOf returns, the names of keys of that provider.
const SecretBox = "secretbox:"
