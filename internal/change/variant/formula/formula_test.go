package formula

import (
	"math"
	"strings"
	"testing"
	"time"
)

const gi = 1 << 30

func large() *Node {
	return &Node{Name: "n1", Labels: map[string]string{"size": "xl", "a/b": "c"},
		Allocatable: map[string]float64{"cpu": 191.5, "memory": 700 * gi, "pods": 110},
		Capacity:    map[string]float64{"cpu": 192, "memory": 768 * gi}}
}

func TestWhatFormulasGive(t *testing.T) {
	for text, want := range map[string]float64{
		"quantity('128Mi')": 128 << 20,
		"max(quantity('128Mi'), node.allocatable.memory * 0.01)": 7 * gi,
		"min(quantity('1Gi'), node.allocatable.memory * 0.01)":   gi,
		"0.1 + node.allocatable.cpu * 0.01":                      2.015,
		"node.capacity.cpu - node.allocatable.cpu":               0.5,
		"max(1, 2)":         2,
		"max(1, 2.5)":       2.5,
		"min(0.5, 1)":       0.5,
		"256 * 1024 * 1024": 256 << 20,
		"node.labels['size'] == 'xl' ? 2.0 : 1.0": 2,
		"has(node.labels.size) ? 2 : 1":           2,
		"has(node.labels.other) ? 2 : 1":          1,
		"'a/b' in node.labels ? 0.5 : 1.0":        0.5,
		"node.name.startsWith('n') ? 1.0 : 2.0":   1,
		"quantity('100m')":                        0.1,
		"node.allocatable.pods * 1.0":             110,
	} {
		f, err := Compile(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got, err := f.On(large()); err != nil || math.Abs(got-want) > 1e-9*want {
			t.Errorf("%s gives %v, %v, want %v", text, got, err, want)
		}
	}
}

// What cannot be a formula is found when it is written, with a word of what is wrong.
func TestWhatIsNoFormula(t *testing.T) {
	for text, want := range map[string]string{
		"":                                    "is empty",
		"  ":                                  "is empty",
		"1 +":                                 "Syntax error",
		"'128Mi'":                             "gives a string",
		"true":                                "gives a bool",
		"node.allocatable":                    "gives a map",
		"pod.name":                            "undeclared reference",
		"node.allocatable.memory / 100":       "no matching overload",
		"max('a', 'b')":                       "no matching overload",
		"quantity(1)":                         "no matching overload",
		"1.0 + " + strings.Repeat("1.0", Max): "more than 1024 characters",
		// Nothing repeats: that is how a formula of few characters would cost much.
		"node.labels.all(k, true) ? 1 : 2":                        "undeclared reference",
		"[1, 2].map(i, [1, 2].map(j, i * j))[0][0]":               "undeclared reference",
		"[1, 2].exists(i, i > 1) ? 1 : 2":                         "undeclared reference",
		strings.Repeat("(", 500) + "1" + strings.Repeat(")", 500): "",
	} {
		_, err := Compile(text)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40s: %v, want %q", text, err, want)
		}
	}
}

// What depends on the node fails on that node alone, and says why.
func TestFormulasThatFailOnANode(t *testing.T) {
	small := &Node{Name: "n", Labels: map[string]string{"x": "y"}, Allocatable: map[string]float64{"cpu": 2}}
	for text, want := range map[string]string{
		"node.allocatable.memory * 0.1":   "no such key: memory",
		"node.labels.size == 'x' ? 1 : 2": "no such key: size",
		"quantity(node.labels.x)":         `"y" is no quantity`,
		"1 / 0":                           "division by zero",
		"9223372036854775807 + 1":         "overflow",
		"int(node.labels.x)":              "",
	} {
		f, err := Compile(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got, err := f.On(small); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s gives %v, %v, want %q", text, got, err, want)
		}
	}
}

// Whatever somebody writes, reading and computing it takes no time to speak of.
func FuzzFormula(f *testing.F) {
	for _, text := range []string{"node.allocatable.memory * 0.01", "max(quantity('128Mi'), 1)", "'a'.matches('(a*)*b') ? 1 : 2",
		"'aaaaaaaaaaaaaaaaaaaaaaaaaaaa'.matches('((a{1000}){1000}){1000}') ? 1 : 2", "[[[1]]][0][0][0]",
		"{'a': 1}.a", "double('NaN')", "-1.0", "1e308 * 10.0", "duration('1h') > duration('1m') ? 1 : 2",
		"has(node.labels.a) ? 1.0 : double('1')", "timestamp('2020-01-01T00:00:00Z').getFullYear()",
		"type(1) == int ? 1 : 2", "dyn(node.name) + dyn(1)", "dyn(1)"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		began := time.Now()
		formula, err := Compile(text)
		if err == nil {
			if _, err := formula.On(large()); err != nil && err.Error() == "" {
				t.Error("an error without words")
			}
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("%q took %v", text, took)
		}
	})
}

// At each change of a variant every DaemonSet reads the formulas of all that choose it.
func TestAFormulaIsReadOnce(t *testing.T) {
	const text = "max(0.1, min(2.0, node.allocatable['cpu'] * 0.05))"
	read := func() {
		if _, err := Compile(text); err != nil {
			t.Fatal(err)
		}
	}
	read()
	if allocations := testing.AllocsPerRun(20, read); allocations > 5 {
		t.Errorf("a formula that is known makes %.0f things", allocations)
	}
}
