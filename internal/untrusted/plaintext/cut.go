package plaintext

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// Cut shortens a text of more than so many bytes, at a letter, and puts the mark behind what is left.
func Cut(text string, most int, mark string) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + mark
}

// ShortName returns a name of at most so many bytes, which must be 20 or more: the name itself, or what fits of its
// beginning with 16 digits of its digest, so that two names do not become one.
func ShortName(name string, most int) string {
	if len(name) <= most {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	digest := hex.EncodeToString(sum[:8])
	return strings.TrimRight(name[:most-1-len(digest)], "-.") + "-" + digest
}
