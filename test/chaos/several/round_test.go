package main

import (
	"maps"
	"strings"
	"testing"
)

func TestCompare(t *testing.T) {
	good := holding{"made-0-0": "5 ", "made-1-0": "6 ", "counter": "9 3"}
	but := func(change func(holding)) holding {
		h := maps.Clone(good)
		change(h)
		return h
	}
	clients := told{made: map[string]bool{"made-0-0": true, "made-1-0": true}, counted: 3, tried: 4}
	for _, test := range []struct {
		what  string
		third holding
		want  string
	}{
		{"all the same", good, ""},
		{"a lost write", but(func(h holding) { delete(h, "made-1-0") }), "c lacks made-1-0"},
		{"a lost addition", but(func(h holding) { h["counter"] = "9 2" }), "c has counted to 2; 3 additions"},
		{"an addition done twice", but(func(h holding) { h["counter"] = "9 5" }), "c has counted to 5"},
		{"no counter", but(func(h holding) { delete(h, "counter") }), "c has counted to 0"},
		{"what nobody else has", but(func(h holding) { h["made-2-0"] = "7 " }), "c has 4 objects, a 3"},
		{"another version", but(func(h holding) { h["made-0-0"] = "8 " }), `c has made-0-0 as "8 "`},
	} {
		all := map[string]holding{"a": good, "b": good, "c": test.third}
		got := strings.Join(append(clients.lost(all), differences(all)...), "\n")
		if test.want == "" && got != "" || !strings.Contains(got, test.want) {
			t.Errorf("%s: %q, want %q", test.what, got, test.want)
		}
	}
	unknown := told{made: map[string]bool{}, tried: 4}
	if got := unknown.lost(map[string]holding{"a": {}, "b": {}}); len(got) > 0 {
		t.Errorf("where nothing was acknowledged: %v", got)
	}
}
