package env

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestExpand(t *testing.T) {
	lookup := Lookup([]Var{{"A", "first"}, {"A", "a"}, {"EMPTY", ""}, {"SELF", "$(A)"}, {"ü", "umlaut"}, {"x$(A", "odd"}})
	tests := []struct{ in, want string }{
		{"", ""},
		{"plain text", "plain text"},
		{"$(A)", "a"},
		{"$(A)$(A)", "aa"},
		{"<$(A)|$(EMPTY)|$(A)>", "<a||a>"},
		{"$(NO)", "$(NO)"},
		{"$$(A)", "$(A)"},
		{"$$$(A)", "$a"},
		{"$$$$(A)", "$$(A)"},
		{"$$", "$"},
		{"$", "$"},
		{"a$", "a$"},
		{"$(", "$("},
		{"$(A", "$(A"},
		{"$(A$(A)", "$(A$(A)"},
		{"$(x$(A)", "odd"},
		{"$()", "$()"},
		{"$A ${A} $ü", "$A ${A} $ü"},
		{"$(ü)", "umlaut"},
		{"$(SELF)", "$(A)"},
		{"$(A))", "a)"},
		{"\xff$(A)\xff", "\xffa\xff"},
	}
	for _, test := range tests {
		if got, err := Expand(test.in, lookup); got != test.want || err != nil {
			t.Errorf("Expand(%q) = %q, %v, want %q", test.in, got, err, test.want)
		}
	}
}

func FuzzExpand(f *testing.F) {
	for _, seed := range []string{"", "$(A)", "$$(A)", "$(", "a$", "$(A$(B)", "ü$ü", "$$$"} {
		f.Add(seed, "value")
	}
	f.Fuzz(func(t *testing.T, s, value string) {
		none := func(string) (string, bool) { return "", false }
		escaped := strings.ReplaceAll(s, "$", "$$")
		if got, err := Expand(escaped, none); got != s && err == nil {
			t.Errorf("escaped %q expands to %q", s, got)
		}
		if !strings.Contains(s, "$$") {
			if got, err := Expand(s, none); got != s && err == nil {
				t.Errorf("with nothing known %q becomes %q", s, got)
			}
		}
		all := func(string) (string, bool) { return value, true }
		if got, err := Expand(escaped+"$(X)", all); got != s+value && err == nil {
			t.Errorf("after %q the reference becomes %q", escaped, got)
		}
	})
}

// A few bytes that refer to each other are more than a machine has memory.
func TestReferencesHaveAnEnd(t *testing.T) {
	pod := &corev1.Pod{}
	doubling := &corev1.Container{Env: []corev1.EnvVar{{Name: "A0", Value: "0123456789"}}}
	for i := 1; i < 40; i++ {
		doubling.Env = append(doubling.Env, corev1.EnvVar{Name: fmt.Sprint("A", i), Value: fmt.Sprintf("$(A%d)$(A%d)", i-1, i-1)})
	}
	many := &corev1.Container{Env: []corev1.EnvVar{{Name: "A", Value: strings.Repeat("x", 100_000)}}}
	for i := range 1000 {
		many.Env = append(many.Env, corev1.EnvVar{Name: fmt.Sprint("B", i), Value: "$(A)"})
	}
	long := &corev1.Container{Env: []corev1.EnvVar{{Name: "A", Value: strings.Repeat("x", 100_000)}, {Name: "B", Value: strings.Repeat("$(A)", 100_000)}}}
	for what, c := range map[string]*corev1.Container{"longer than 131071 bytes": doubling, "larger than 6291456 bytes": many, "environment variable B: ": long} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := Build(t.Context(), pod, c, nil, nil, objects{})
		runtime.ReadMemStats(&after)
		if err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("the error is %v, want one with %q", err, what)
		}
		if taken := after.TotalAlloc - before.TotalAlloc; taken > 50<<20 {
			t.Errorf("%s: it took %d bytes of memory to find out", what, taken)
		}
	}
}
