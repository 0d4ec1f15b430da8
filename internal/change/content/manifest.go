package content

import (
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/internal/untrusted/plaintext"
)

// Label is the label of what stands for content in the API. It is on the copies, on the manifests and on
// the key, and says which of them an object is.
const Label = "everynode.io/content"

// The values of Label.
const (
	IsCopy     = "copy"
	IsManifest = "manifest"
	IsKey      = "key"
)

// KeyName is the name of the Secret with the key of a namespace's hashes.
const KeyName = "everynode-content-key"

// KeyRef is that Secret.
var KeyRef = Ref{Secret, KeyName}

// KeyOf returns the key that a Secret holds; nil if there is none, or it is too short to be one.
func KeyOf(s *corev1.Secret) []byte {
	if key := s.Data["key"]; len(key) >= 32 {
		return key
	}
	return nil
}

const manifestKey = "content.json"

// manifest is what a manifest holds.
type manifest struct {
	ID      string   `json:"id"`
	Digest  string   `json:"digest"`
	Members []Member `json:"members"`
}

// ManifestName is the name of the ConfigMap that lists the copies of a content of the DaemonSet.
func ManifestName(owner, id string) string {
	return plaintext.ShortName(owner, maxName-1-digits) + "-" + id
}

// Manifest returns the data of the ConfigMap that lists the copies of the content.
func (c *Content) Manifest() (map[string]string, error) {
	raw, err := json.Marshal(manifest{c.ID, c.Digest, c.Members})
	if err != nil {
		return nil, fmt.Errorf("write the manifest of content %s: %w", c.ID, err)
	}
	return map[string]string{manifestKey: string(raw)}, nil
}

// ReadManifest reads what Manifest wrote. What nobody could have written by it is an error.
func ReadManifest(data map[string]string) (Content, error) {
	var m manifest
	if err := json.Unmarshal([]byte(data[manifestKey]), &m); err != nil {
		return Content{}, fmt.Errorf("read the manifest of a content: %w", err)
	}
	sorted := slices.IsSortedFunc(m.Members, func(a, b Member) int { return a.Ref.Compare(b.Ref) })
	if !IsID(m.ID) || m.Digest == "" || len(m.Members) > MaxObjects || !sorted {
		return Content{}, fmt.Errorf("read the manifest of a content: it is not as it was written")
	}
	for i := range m.Members {
		if k := m.Members[i].Kind; k != ConfigMap && k != Secret {
			return Content{}, fmt.Errorf("read the manifest of a content: it lists a %q", k)
		}
	}
	return Content{m.ID, m.Digest, m.Members}, nil
}

// Changes names the keys in which two contents differ, a line for each object and at most most lines.
// Of says what the member of a content held; nil if that is not known, or nothing.
func Changes(from, to *Content, most int, of func(Member) *Object) (lines []string) {
	before := map[Ref]Member{}
	if from != nil {
		for _, m := range from.Members {
			before[m.Ref] = m
		}
	}
	say := func(text string) { lines = append(lines, text) }
	for _, m := range to.Members {
		was, had := before[m.Ref]
		delete(before, m.Ref)
		switch {
		case had && (was.Copy == m.Copy || was.Absent && m.Absent):
		case !had:
			say(m.String() + " is part of the revision")
		case m.Absent:
			say(m.String() + " is gone")
		case was.Absent:
			say(m.String() + " is there")
		default:
			if keys := differing(of(was), of(m)); keys != "" {
				say(m.String() + ": " + keys)
			}
		}
	}
	for _, m := range from.membersIn(before) {
		say(m.String() + " is no longer part of the revision")
	}
	if len(lines) > most {
		lines = append(lines[:most-1], fmt.Sprintf("and %d more objects", len(lines)-most+1))
	}
	return lines
}

// differing says in which keys two objects differ; "" if in none, as where copies of the same have other names by a
// key. nil is one of which nothing is known.
func differing(from, to *Object) string {
	if from == nil || to == nil {
		return "keys that are not known"
	}
	return list(Keys(from, to))
}

// membersIn are those of the members that are left, in their order.
func (c *Content) membersIn(left map[Ref]Member) (out []Member) {
	if c == nil {
		return nil
	}
	for _, m := range c.Members {
		if _, is := left[m.Ref]; is {
			out = append(out, m)
		}
	}
	return out
}

// list names three keys and counts the others.
func list(keys []string) string {
	text, named := "", 0
	for _, k := range keys {
		if named == 3 {
			return text + fmt.Sprintf(" and %d more keys", len(keys)-named)
		}
		if named > 0 {
			text += ", "
		}
		named++
		text += k
	}
	return text
}
