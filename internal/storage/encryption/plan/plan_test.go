package plan

import (
	"fmt"
	"maps"
	"math/rand"
	"slices"
	"strings"
	"testing"
)

func TestNext(t *testing.T) {
	ok := []Server{{Name: "a", Follows: true, Settled: true}}
	for name, c := range map[string]struct {
		facts Facts
		want  Kind
		keys  []string
		says  string
	}{
		"no file":                      {Facts{Servers: ok}, Add, []string{"", "key-1"}, "not encrypted"},
		"a file that encrypts nothing": {Facts{Keys: []string{""}, Servers: ok}, Add, []string{"", "key-1"}, ""},
		"one key":                      {Facts{Keys: []string{"key-4"}, Servers: ok}, Done, nil, "key-4"},
		"one key is to be replaced":    {Facts{Rotate: true, Keys: []string{"key-4"}, Servers: ok}, Add, []string{"key-4", "key-5"}, ""},
		"all read the new key":         {Facts{Keys: []string{"key-9", "key-10"}, Servers: ok}, Promote, []string{"key-10", "key-9"}, ""},
		"what is plain":                {Facts{Keys: []string{"", "key-1"}, Servers: ok}, Promote, []string{"key-1", ""}, ""},
		"a server does not follow": {Facts{Keys: []string{"key-1", "key-2"}, Servers: append(ok, Server{Name: "b"})},
			Wait, nil, "copy the file"},
		"a server is silent": {Facts{Keys: []string{"key-2", "key-1"}, Servers: append(ok, Server{Name: "b", Silent: true})},
			Wait, nil, "delete its Lease"},
		"a silent one that had followed": {Facts{Keys: []string{"key-2", "key-1"}, Servers: append(ok, Server{Name: "b", Follows: true, Settled: true, Silent: true})},
			Drop, []string{"key-2"}, ""},
		"nobody has told":      {Facts{Keys: []string{"key-1", "key-2"}}, Wait, nil, "no server"},
		"old objects are left": {Facts{Keys: []string{"key-2", "key-1"}, Stored: map[string]int{"key-1": 3, "key-2": 9}, Servers: ok}, Rewrite, nil, "3 objects"},
		"plain ones are left":  {Facts{Keys: []string{"key-1", ""}, Stored: map[string]int{"": 3}, Servers: ok}, Rewrite, nil, "3 objects"},
		"writes may be under way": {Facts{Keys: []string{"key-2", "key-1"}, Stored: map[string]int{"key-2": 9}, Servers: []Server{{Name: "a", Follows: true}}},
			Wait, nil, "under way"},
		"nothing is left": {Facts{Rotate: true, Keys: []string{"key-2", "key-1"}, Stored: map[string]int{"key-1": 0, "key-2": 9}, Servers: ok}, Drop, []string{"key-2"}, ""},
	} {
		got, err := Next(c.facts)
		if err != nil || got.Kind != c.want || !slices.Equal(got.Keys, c.keys) || !strings.Contains(got.Reason, c.says) {
			t.Errorf("%s: %+v, %v, want %s %q", name, got, err, c.want, c.keys)
		}
	}
	for name, c := range map[string]struct {
		facts Facts
		says  string
	}{
		"three keys":        {Facts{Keys: []string{"key-1", "key-2", "key-3"}}, "by hand"},
		"one name twice":    {Facts{Keys: []string{"key-1", "key-1"}}, "one name"},
		"a key is missing":  {Facts{Keys: []string{"key-2"}, Stored: map[string]int{"key-1": 2}}, "restore that key"},
		"plain is no key":   {Facts{Keys: []string{"key-2"}, Stored: map[string]int{"": 2}}, "no key (plain)"},
		"missing in change": {Facts{Keys: []string{"key-3", "key-2"}, Stored: map[string]int{"key-1": 2}}, "key-1"},
	} {
		if got, err := Next(c.facts); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// world is a database and its servers, each of which uses the file as it was when
// it last looked.
type world struct {
	file    []string
	servers [][]string
	objects map[int]string
}

// write is one that a server does, with the first of the keys that it knows.
func (w *world) write(server, object int) { w.objects[object] = first(w.servers[server]) }

func first(keys []string) string {
	if len(keys) == 0 {
		return ""
	}
	return keys[0]
}

// check says whether any server cannot read an object.
func (w *world) check() error {
	for i, keys := range w.servers {
		for object, key := range w.objects {
			if !slices.Contains(keys, key) && (key != "" || len(keys) > 0) {
				return fmt.Errorf("server %d, with the keys %q, cannot read object %d, which %q wrote", i, keys, object, key)
			}
		}
	}
	return nil
}

func (w *world) facts(rotate bool) Facts {
	f := Facts{Rotate: rotate, Keys: w.file, Stored: map[string]int{}}
	for _, key := range w.objects {
		f.Stored[key]++
	}
	for i, keys := range w.servers {
		follows := slices.Equal(keys, w.file)
		f.Servers = append(f.Servers, Server{Name: fmt.Sprint(i), Follows: follows, Settled: follows})
	}
	return f
}

// Whatever servers write meanwhile, however late they look at the file and whenever
// the change is interrupted: every server can read every object at each moment, and
// the change comes to its end.
func TestEveryServerReadsEverything(t *testing.T) {
	for seed := range int64(300) {
		chance := rand.New(rand.NewSource(seed)) //nolint:gosec // A test is to be repeatable.
		w := &world{servers: make([][]string, 1+chance.Intn(3)), objects: map[int]string{}}
		ended := 0
		for step := 0; ended < 3; step++ {
			if step > 5000 {
				t.Fatalf("seed %d: no end: %+v", seed, w)
			}
			server := chance.Intn(len(w.servers))
			switch chance.Intn(3) {
			case 0:
				w.write(server, chance.Intn(20))
			case 1:
				w.servers[server] = slices.Clone(w.file)
			default: // the command, which may be started again each time
				ended += w.act(t, seed)
			}
			if err := w.check(); err != nil {
				t.Fatalf("seed %d, step %d: %v", seed, step, err)
			}
		}
		if w.file[0] != "key-3" {
			t.Fatalf("seed %d: the file is %q", seed, w.file)
		}
	}
}

func (w *world) act(t *testing.T, seed int64) (ended int) {
	t.Helper()
	before := w.file
	step, err := Next(w.facts(len(w.file) == 1))
	if err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	if step.Keys != nil {
		w.file = step.Keys
	}
	switch step.Kind {
	case Drop:
		return 1
	case Rewrite:
		for _, object := range slices.Sorted(maps.Keys(w.objects)) {
			if w.objects[object] != before[0] {
				w.objects[object] = before[0]
				break
			}
		}
	}
	return 0
}
