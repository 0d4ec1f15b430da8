package hostile

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
)

// slot is a place in an object where a value stands.
type slot struct {
	value any
	// name is the key that leads here, that of the list for its elements.
	name string
	// typ is the Go type of the value, nil where it is not known.
	typ reflect.Type
	// set puts another value there, remove leaves nothing. The root cannot be removed.
	set    func(any)
	remove func()
	// twin puts the value there once more; nil outside lists.
	twin func()
}

// slots lists every place of an object, in an order that depends on it only.
func slots(value any, typ reflect.Type, set func(any)) (out []slot) {
	collect(slot{value: value, typ: typ, set: set, remove: func() {}}, &out)
	return out
}

func collect(s slot, out *[]slot) {
	*out = append(*out, s)
	switch v := s.value.(type) {
	case map[string]any:
		for _, key := range sortedKeys(v) {
			collect(slot{
				value: v[key], name: key, typ: memberType(s.typ, key), set: func(x any) { v[key] = x }, remove: func() { delete(v, key) },
			}, out)
		}
	case []any:
		for i := range v {
			collect(slot{
				value: v[i], name: s.name, typ: elementType(s.typ), set: func(x any) { v[i] = x },
				remove: func() { s.set(slices.Delete(slices.Clone(v), i, i+1)) },
				twin:   func() { s.set(append(slices.Clone(v), clone(v[i]))) },
			}, out)
		}
	}
}

// clone copies an object.
func clone(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, x := range v {
			out[k] = clone(x)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, x := range v {
			out[i] = clone(x)
		}
		return out
	}
	return v
}

// mutator changes objects as the source says.
type mutator struct {
	*source
	lore *lore
}

// lore is what stands in the valid objects: all words, and the values by the name
// of their field, so that what is put somewhere often is right there.
type lore struct {
	words  []string
	values map[string][]any
}

// change makes up to n changes to an object of the type and returns it.
func (m *mutator) change(root any, typ reflect.Type, n int) any {
	for range n {
		if m.empty() {
			break
		}
		root = m.once(root, typ)
	}
	return root
}

func (m *mutator) once(root any, typ reflect.Type) any {
	all := slots(root, typ, func(v any) { root = v })
	at := all[m.below(len(all))]
	switch m.below(14) {
	case 0, 1:
		at.set(m.other(at))
	case 2:
		at.remove()
	case 3:
		if at.twin != nil {
			at.twin()
		}
	case 4, 5, 6, 7:
		m.grow(at)
	case 8:
		at.set(m.generate(at.typ, 3))
	case 9:
		// What is right in one place may be wrong in another.
		at.set(clone(all[m.below(len(all))].value))
	case 10:
		at.set(pick(m.source, []any{nil, map[string]any{}, []any{}, "", json.Number("0"), false}))
	case 11:
		at.set(m.wrap(at.value))
	case 12:
		if members, ok := at.value.(map[string]any); ok {
			members[pick(m.source, m.lore.words)] = m.word()
		} else {
			at.set(m.word())
		}
	case 13:
		m.reverse(at)
	}
	return root
}

func (m *mutator) reverse(at slot) {
	list, ok := at.value.([]any)
	if !ok {
		at.set(m.number())
		return
	}
	list = slices.Clone(list)
	slices.Reverse(list)
	at.set(list)
}

// seen returns a value that some valid object has under the name.
func (m *mutator) seen(name string) (any, bool) {
	values := m.lore.values[name]
	if len(values) == 0 || m.below(3) == 2 {
		return nil, false
	}
	return clone(pick(m.source, values)), true
}

// other returns another value of the same sort.
func (m *mutator) other(at slot) any {
	if v, ok := m.seen(at.name); ok && at.twin == nil {
		return v
	}
	switch v := at.value.(type) {
	case string:
		return m.word()
	case json.Number:
		return m.number()
	case bool:
		return !v
	}
	return m.generate(at.typ, 3)
}

// grow adds a member that the type has.
func (m *mutator) grow(at slot) {
	switch v := at.value.(type) {
	case map[string]any:
		if members := membersOf(at.typ); len(members) > 0 {
			f := pick(m.source, members)
			v[f.name] = m.member(f, 3)
		} else {
			v[m.word()] = m.generate(elementType(at.typ), 2)
		}
	case []any:
		at.set(append(slices.Clone(v), m.generate(elementType(at.typ), 3)))
	default:
		at.set(m.generate(at.typ, 2))
	}
}

// member makes a value for a field.
func (m *mutator) member(f member, depth int) any {
	if v, ok := m.seen(f.name); ok {
		return v
	}
	return m.generate(f.typ, depth)
}

// wrap nests a value, now and then so deep that a recursion without a limit shows.
func (m *mutator) wrap(v any) any {
	depth := pick(m.source, []int{1, 2, 40, 1, 1000, 11000})
	list := m.oneIn(2)
	for range depth {
		if list {
			v = []any{v}
		} else {
			v = map[string]any{"a": v}
		}
	}
	return v
}

// word returns a string: one that stands in some seed, one that is special, or
// one of the fuzzer's own.
func (m *mutator) word() string {
	switch m.below(8) {
	case 0, 1, 2:
		return pick(m.source, m.lore.words)
	case 3, 4, 5:
		return pick(m.source, special)
	case 6:
		return strings.Repeat(pick(m.source, []string{"a", "é", "a.", "/", "-", "\x00", "[", "($", "0"}), pick(m.source, []int{2, 63, 64, 253, 254, 4096, 70000, 300000}))
	default:
		return string(m.rest(1 + m.below(24)))
	}
}

func (m *mutator) number() json.Number { return json.Number(pick(m.source, numbers)) }

// numbers are those at which something ends.
var numbers = []string{
	"0", "1", "-1", "2", "10", "100", "255", "256", "511", "512", "65535", "65536", "3600", "2147483646", "2147483647", "2147483648", "-2147483648", "-2147483649",
	"4294967296", "9007199254740993", "9223372036854775807", "9223372036854775808", "-9223372036854775808", "18446744073709551616",
	"0.5", "1e3", "1e10", "1.5e300", "1e400", "-0", "0.0000000000000000001", "999999999999",
}

// special are strings that somebody may take for something.
var special = []string{
	"", " ", "a", "A", "-", ".", "..", "../..", "/", "//", "a/b", "a/b/c", "/a/../b", "a_b", "a b", "*", "a*", "\n", "a\nb", "\t", "\x00", "a\x00b", "\u202e", "\ufffd", "é", "💥", "\u0130",
	"%s%n", "%2e%2e", "${X}", "$(X)", "$$(X)", "$(", "{{.}}", "null", "true", "yes", "~", "0", "-0", "1", "-1", "007", "0x10", "1e3", "1e999", "NaN", "Inf",
	"50%", "100%", "101%", "-5%", "%", "1000000000000%", "0%", "1.5%", "1Ki", "1.5Gi", "1m", "-1m", "1n", "0.1n", "999999999999999999999E", "1e-30", "9223372036854775807", "-9223372036854775808", "1E", "1ki",
	"0001-01-01T00:00:00Z", "1969-12-31T23:59:59Z", "9999-12-31T23:59:59Z", "10000-01-01T00:00:00Z", "2026-02-30T00:00:00Z", "2026-01-01T00:00:00.000000Z", "2262-04-12T00:00:00Z",
	"1s", "-1s", "1h1m", "876000h", "9223372036854775807ns", "1",
	"v1", "v2", "apps/v1", "apps/v2", "/", "/v1", "a/b/v1", "metadata.name", "metadata.labels", "metadata.labels['a']", "metadata.labels[']", "metadata.annotations[\"x\"]", "spec.nodeName", "status.podIP", "spec.nodeName=", "limits.cpu", "requests.memory",
	"10.0.0.1", "10.96.0.1", "10.96.0.0/16", "10.96.255.255", "999.1.1.1", "::1", "::ffff:10.0.0.1", "fe80::1%eth0", "0.0.0.0/0", "::/0", "10.0.0.0/33", "127.0.0.1", "169.254.0.1", "224.0.0.1", "localhost", "None",
	"default", "kube-system", "kube-public", "hostile", "kubernetes", "kubernetes.io/hostname", "node.kubernetes.io/unschedulable", "node-role.kubernetes.io/control-plane", "pod-template-hash", "controller-revision-hash", "app.kubernetes.io/a", "a.b/c", "/a", "a/", "kubernetes.io/", "k8s.io/a",
	"deprecated.daemonset.template.generation", "kubectl.kubernetes.io/last-applied-configuration", "kubernetes.io/config.mirror", "seccomp.security.alpha.kubernetes.io/pod", "container.apparmor.security.beta.kubernetes.io/a", "service.kubernetes.io/topology-mode",
	"foregroundDeletion", "orphan", "Always", "Never", "OnFailure", "OnDelete", "RollingUpdate", "Recreate", "IfNotPresent", "Exists", "DoesNotExist", "In", "NotIn", "Gt", "Lt", "Equal", "NoSchedule", "NoExecute", "PreferNoSchedule",
	"True", "False", "Unknown", "Pending", "Running", "Succeeded", "Failed", "ClusterIP", "NodePort", "LoadBalancer", "ExternalName", "ClientIP", "Local", "Cluster", "TCP", "UDP", "SCTP", "http", "IPv4", "IPv6", "FQDN", "SingleStack", "PreferDualStack", "RequireDualStack",
	"system-node-critical", "system-cluster-critical", "system:nodes", "system:masters", "system:node:n1", "system:serviceaccount:default:default", "Directory", "DirectoryOrCreate", "File", "Socket", "Memory", "HugePages-2Mi", "hugepages-2Mi", "hugepages-", "cpu", "memory", "ephemeral-storage", "pods", "example.com/gpu", "requests.cpu", "attachable-volumes-x",
	"kubernetes.io/service-account-token", "kubernetes.io/dockerconfigjson", "kubernetes.io/tls", "kubernetes.io/basic-auth", "kubernetes.io/ssh-auth", "bootstrap.kubernetes.io/token", "e30=", "!", "{}", "[]", "{\"auths\":{}}", "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n",
	"object.metadata.name == 'a'", "has(object.spec)", "1/0 == 1", "[1,2,3].map(x, x*x)", "Restricted", "privileged", "baseline", "DaemonSet", "Pod", "Node", "ConfigMap",
}

// text changes bytes as they are, without a view to what they say.
func (m *mutator) text(b []byte) []byte {
	b = slices.Clone(b)
	for range 1 + m.below(4) {
		at := m.below(len(b) + 1)
		end := min(len(b), at+1+m.below(40))
		switch m.below(6) {
		case 0:
			b = slices.Insert(b, at, m.rest(1+m.below(8))...)
		case 1:
			b = slices.Delete(b, at, end)
		case 2:
			b = slices.Insert(b, at, slices.Clone(b[at:end])...)
		case 3:
			if at < len(b) {
				b[at] ^= 1 << m.below(8)
			}
		case 4:
			b = slices.Insert(b, at, pick(m.source, noise)...)
		case 5:
			b = b[:at]
		}
	}
	return b
}

// noise is what parsers may stumble over.
var noise = [][]byte{
	{0}, {0xff}, {0xc3, 0x28}, {0xed, 0xa0, 0x80}, {0xef, 0xbb, 0xbf}, []byte("\\ud800"), []byte("\\u0000"), []byte("}"), []byte("]"), []byte("{"), []byte("\""), []byte("\n---\n"), []byte("&a [*a]"),
	[]byte("<<: *a\n"), []byte("!!binary x"), []byte("? "), []byte("\t"), []byte("\"metadata\":{},"), []byte("\"spec\":null,"), []byte(",\"x\":1"), []byte("%YAML 9.9\n"), []byte("k8s\x00"),
	{0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f}, {0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01}, []byte("//c\n"), []byte("1e999999999"),
}
