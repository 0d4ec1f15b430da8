package main

import (
	"strings"
	"testing"
)

func TestMisheard(t *testing.T) {
	made, changed, gone, other := change{11, "a", false}, change{12, "a", false}, change{13, "a", true}, change{14, "b", false}
	good := stretch{from: 10, to: 15, listed: map[string]int64{}, told: []change{made, changed, gone, other}}
	but := func(to int64, told ...change) stretch {
		return stretch{from: 10, to: to, listed: map[string]int64{}, told: told}
	}
	for _, test := range []struct {
		what string
		is   []stretch
		want string
	}{
		{"the same", []stretch{good}, ""},
		{"it ended earlier", []stretch{but(12, made, changed)}, ""},
		{"it began later", []stretch{{from: 12, to: 15, listed: map[string]int64{"a": 12}, told: []change{gone, other}}}, ""},
		{"it began again", []stretch{but(11, made), {from: 14, to: 15, listed: map[string]int64{"b": 14}}}, ""},
		{"it only listed", []stretch{{from: 15, to: 15, listed: map[string]int64{"b": 14}}}, ""},
		{"a change was left out", []stretch{but(15, made, gone, other)}, "told all up to 15 and not of a at 12"},
		{"the last was left out, and a bookmark told that there is none", []stretch{but(15, made, changed, gone)}, "not of b at 14"},
		{"one twice", []stretch{but(15, made, changed, changed, gone, other)}, "of a at 12 after 12"},
		{"back in time", []stretch{but(15, made, gone, changed, other)}, "of a at 12 after 13"},
		{"another object", []stretch{but(15, made, change{12, "c", false}, gone, other)}, "told at 12 of"},
		{"an old list", []stretch{{from: 12, to: 12, listed: map[string]int64{"a": 11}}}, "listed a at 12 with version 11"},
		{"a list with what was gone", []stretch{{from: 13, to: 13, listed: map[string]int64{"a": 12}}}, "listed a at 13 with version 12"},
		{"a list that lacks something", []stretch{{from: 14, to: 14, listed: map[string]int64{}}}, "listed b at 14 with version 0"},
	} {
		got := strings.Join(misheard(map[string][]stretch{"first": {good}, "second": test.is}), "\n")
		if test.want == "" && got != "" || !strings.Contains(got, test.want) {
			t.Errorf("%s: %q, want %q", test.what, got, test.want)
		}
	}
	listed := stretch{from: 15, to: 15, listed: map[string]int64{"c": 13}}
	got := strings.Join(misheard(map[string][]stretch{"first": {but(15, made)}, "second": {listed}}), "\n")
	if !strings.Contains(got, "first was told all up to 15 and not of c at 13") {
		t.Errorf("what only a list knows of: %q", got)
	}
}
