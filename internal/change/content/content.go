package content

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// The most that can be content of one DaemonSet.
const (
	MaxObjects = 20
	// MaxBytes is of one object, its keys and values together.
	MaxBytes = 1 << 20
)

// digits is the length of names that are made of digests: 120 bits.
const digits = 24

// maxName is the longest name of an object.
const maxName = 253

const alphabet = "abcdefghijklmnopqrstuvwxyz234567"

var letters = base32.NewEncoding(alphabet).WithPadding(base32.NoPadding)

// Object is what a pod can see of a ConfigMap or a Secret. It shares its maps with the API's object.
type Object struct {
	Ref
	Labels map[string]string
	Data   map[string]string
	Binary map[string][]byte
	// NotContent tells that the API made it, and renews it: a token, or the cluster's own CA.
	NotContent bool
	// Immutable tells that nobody can change what it holds.
	Immutable bool
}

// rootCA is the ConfigMap with the CA of the API's server, which each namespace has.
const rootCA = "kube-root-ca.crt"

// IsCluster reports whether the cluster makes and renews the object of that name, also where it is not there yet.
func (r Ref) IsCluster() bool { return r.Kind == ConfigMap && r.Name == rootCA }

// OfConfigMap returns a ConfigMap as an object.
func OfConfigMap(m *corev1.ConfigMap) *Object {
	return &Object{
		Ref: Ref{ConfigMap, m.Name}, Labels: m.Labels, Data: m.Data, Binary: m.BinaryData, NotContent: m.Name == rootCA,
		Immutable: ptr.Deref(m.Immutable, false),
	}
}

// OfSecret returns a Secret as an object.
func OfSecret(s *corev1.Secret) *Object {
	return &Object{
		Ref: Ref{Secret, s.Name}, Labels: s.Labels, Binary: s.Data,
		NotContent: s.Type == corev1.SecretTypeServiceAccountToken, Immutable: ptr.Deref(s.Immutable, false),
	}
}

// size is that of all keys and values, in bytes.
func (o *Object) size() (n int) {
	for k, v := range o.Data {
		n += len(k) + len(v)
	}
	for k, v := range o.Binary {
		n += len(k) + len(v)
	}
	return n
}

// Member is an object of a content.
type Member struct {
	Ref
	// Copy is the name of the copy. No object has it where the author's was missing: CopyRef says which one is there.
	Copy   string `json:"copy"`
	Absent bool   `json:"absent,omitempty"`
}

// Content is what a template's objects held at one time.
type Content struct {
	// ID is short, for names; Digest is that of all members, as sha256: and 64 digits.
	ID, Digest string
	Members    []Member
}

// Sum returns what identifies an object's data as content of the owner: nil for an object that is not there.
type Sum func(Ref) ([]byte, error)

// Of returns the content of the objects that refs name, as copies of the owner. The error says which limit
// is broken.
func Of(key []byte, owner string, refs []Ref, sum Sum) (Content, error) {
	c := Content{}
	if len(refs) > MaxObjects {
		return c, fmt.Errorf("the template names %d ConfigMaps and Secrets; at most %d can be content", len(refs), MaxObjects)
	}
	all := hmac.New(sha256.New, key)
	write(all, []byte("content"), []byte(owner))
	for _, ref := range refs {
		of, err := sum(ref)
		if err != nil {
			return Content{}, err
		}
		m := Member{Ref: ref, Absent: of == nil}
		if m.Absent {
			of = absent(key, owner, ref)
		}
		m.Copy = NameFor(ref.Name, of)
		c.Members = append(c.Members, m)
		write(all, []byte(ref.Kind), []byte(ref.Name), of)
	}
	of := all.Sum(nil)
	c.ID, c.Digest = short(of), "sha256:"+hex.EncodeToString(of)
	return c, nil
}

// Names reports whether the copy's name is that of what has such a sum.
func (m *Member) Names(sum []byte) bool { return m.Copy == NameFor(m.Name, sum) }

// Fits reports whether a copy that has such a sum holds what it must: nothing, where the object was missing.
func (m *Member) Fits(o *Object, sum []byte) bool {
	if m.Absent {
		return o.size() == 0
	}
	return m.Names(sum)
}

// IsLimit reports whether the text is that of an error of Of or Hash: a limit was broken.
func IsLimit(text string) bool {
	return strings.HasPrefix(text, "the template names ") && strings.HasSuffix(text, " can be content") ||
		strings.Contains(text, " bytes; content can have ")
}

// Adds reports whether a content is that of objects with such sums.
func (c *Content) Adds(key []byte, owner string, sum Sum) bool {
	got, err := Of(key, owner, c.Refs(), sum)
	return err == nil && got.Same(c)
}

// Prove returns an error unless a content is that of its copies: each holds for good what its name says, and together
// they are what the ID says. One for an object that was missing must hold nothing, if it is there. held is what an
// object in the API holds; nil if there is none. That one is gone hides nothing that is wrong with those after it.
func (c *Content) Prove(key []byte, owner string, held func(Ref) (*Object, error)) (gone error) {
	sums := map[Ref][]byte{}
	for _, m := range c.Members {
		if !m.HasCopy() {
			continue
		}
		of := m.CopyRef()
		o, err := held(of)
		switch {
		case err != nil:
			return err
		case o == nil && m.Absent:
			continue
		case o == nil:
			gone = cmp.Or(gone, fmt.Errorf("%s: %w", of, ErrGone))
			continue
		}
		sum, err := Hash(key, owner, m.Ref, o)
		if err != nil || !m.Fits(o, sum) || !o.Immutable {
			return fmt.Errorf("%s: %w", of, ErrSpoiled)
		}
		if !m.Absent {
			sums[m.Ref] = sum
		}
	}
	if gone == nil && !c.Adds(key, owner, func(ref Ref) ([]byte, error) { return sums[ref], nil }) {
		return fmt.Errorf("the list of content %s: %w", c.ID, ErrSpoiled)
	}
	return gone
}

// What can be wrong with a copy or a list.
var (
	ErrGone    = errors.New("it is gone")
	ErrSpoiled = errors.New("it was changed after it was made")
)

// Hash returns the sum of an object, as content of the owner under the name of ref. Hashes are keyed: who
// may read the names of copies must not find out short values by trying.
func Hash(key []byte, owner string, ref Ref, object *Object) ([]byte, error) {
	if object.size() > MaxBytes {
		return nil, fmt.Errorf("%s has %d bytes; content can have %d", ref, object.size(), MaxBytes)
	}
	return digest(key, owner, ref, object), nil
}

func absent(key []byte, owner string, ref Ref) []byte { return digest(key, owner, ref, nil) }

// Keyed reports whether the sums of such objects need a key.
func Keyed(refs []Ref) bool {
	return slices.ContainsFunc(refs, func(r Ref) bool { return r.Kind == Secret })
}

// Refs are those of all members.
func (c *Content) Refs() (out []Ref) {
	for _, m := range c.Members {
		out = append(out, m.Ref)
	}
	return out
}

// Same reports whether both say the same of each object.
func (c *Content) Same(o *Content) bool {
	return c.ID == o.ID && c.Digest == o.Digest && slices.Equal(c.Members, o.Members)
}

func digest(key []byte, owner string, ref Ref, object *Object) []byte {
	h := hmac.New(sha256.New, key)
	write(h, []byte(owner), []byte(ref.Kind), []byte(ref.Name))
	if object == nil {
		write(h, []byte("absent"))
		return h.Sum(nil)
	}
	for _, k := range slices.Sorted(maps.Keys(object.Data)) {
		write(h, []byte("data"), []byte(k), []byte(object.Data[k]))
	}
	for _, k := range slices.Sorted(maps.Keys(object.Binary)) {
		write(h, []byte("binary"), []byte(k), object.Binary[k])
	}
	return h.Sum(nil)
}

// write adds parts so that no other parts are written alike.
func write(h hash.Hash, parts ...[]byte) {
	for _, p := range parts {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(p))))
		h.Write(p)
	}
}

func short(sum []byte) string { return letters.EncodeToString(sum)[:digits] }

// NameFor is the name of what a digest is of, made of a name that is cut if there is no room.
func NameFor(name string, sum []byte) string {
	return strings.TrimRight(name[:min(len(name), maxName-1-digits)], "-.") + "-" + short(sum)
}

// Keys returns the keys in which two objects differ, in order; either may be nil.
func Keys(a, b *Object) []string {
	if a == nil {
		a = &Object{}
	}
	if b == nil {
		b = &Object{}
	}
	differ := map[string]bool{}
	compare := func(x, y *Object) {
		for k, v := range x.Data {
			if w, has := y.Data[k]; !has || v != w {
				differ[k] = true
			}
		}
		for k, v := range x.Binary {
			if w, has := y.Binary[k]; !has || string(v) != string(w) {
				differ[k] = true
			}
		}
	}
	compare(a, b)
	compare(b, a)
	return slices.Sorted(maps.Keys(differ))
}
