// Package podname derives the names of daemon pods.
package podname

import (
	"crypto/sha256"
	"encoding/binary"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// Of derives the names of the pods of a DaemonSet on a node. The revision is no part of them: a try of an
// older revision may have succeeded without our knowing.
func Of(ds string, uid types.UID, node string, attempt int) string {
	// 27 letters without vowels and look-alikes, as the API server's own
	// generated names; a host name has room for 63 characters.
	const alphabet, digits, room = "bcdfghjklmnpqrstvwxz2456789", 10, 63
	h := sha256.New()
	for _, part := range []string{string(uid), node} {
		h.Write(binary.BigEndian.AppendUint32(nil, uint32(len(part))))
		h.Write([]byte(part))
	}
	h.Write(binary.BigEndian.AppendUint32(nil, uint32(attempt)))
	n := binary.BigEndian.Uint64(h.Sum(nil))
	var b strings.Builder
	prefix := ds + "-"
	b.WriteString(prefix[:min(len(prefix), room-digits)])
	for range digits {
		b.WriteByte(alphabet[n%uint64(len(alphabet))])
		n /= uint64(len(alphabet))
	}
	return b.String()
}
