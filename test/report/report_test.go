package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// output makes the events of lines that a test printed.
func output(pkg, test string, lines ...string) string {
	var b strings.Builder
	for _, line := range lines {
		fmt.Fprintf(&b, `{"Action":"output","Package":%q,"Test":%q,"Output":%q}`+"\n", pkg, test, line+"\n")
	}
	return b.String()
}

func ended(action, pkg, test string) string {
	return fmt.Sprintf(`{"Action":%q,"Package":%q,"Test":%q,"Elapsed":1.25}`+"\n", action, pkg, test)
}

func TestReport(t *testing.T) {
	many := make([]string, 60)
	for i := range many {
		many[i] = fmt.Sprintf("    line %d", i)
	}
	for _, tc := range []struct {
		name, in       string
		shown          string
		failures, none []string
	}{
		{
			name:  "all is well",
			in:    output("p", "TestA", "=== RUN TestA", "I1120 16:00:00.1 x.go:1] log") + ended("pass", "p", "TestA") + ended("pass", "p", "") + output("q", "", "ok  q (cached)") + ended("pass", "q", ""),
			shown: "ok    p  1.2s\nok    q  (cached)\n",
		},
		{
			name: "a slow package tells where its time went",
			in: strings.ReplaceAll(ended("pass", "p", "TestA/one"), "1.25", "10") + strings.ReplaceAll(ended("pass", "p", "TestA"), "1.25", "60") +
				strings.ReplaceAll(ended("pass", "p", "TestB"), "1.25", "50") + ended("pass", "p", "TestC") + strings.ReplaceAll(ended("pass", "p", ""), "1.25", "61.5"),
			shown: "ok    p  61.5s\n       50.0s TestB\n       10.0s TestA/one\n",
		},
		{
			name: "a test inside a test fails",
			in: output("p", "TestA", "--- FAIL: TestA (0.1s)") +
				output("p", "TestA/one", "I1120 16:00:00.1 x.go:1] log", "    x_test.go:5: wrong", "    logger.go:1: I1120 log", "    worker.go:273: I1120 17:22:48.845268] log") +
				output("p", "TestB", "    b_test.go:1: fine") + ended("pass", "p", "TestB") +
				ended("fail", "p", "TestA/one") + ended("fail", "p", "TestA") + output("p", "", "FAIL") + ended("fail", "p", ""),
			shown:    "FAIL  p  1.2s\n",
			failures: []string{"--- FAIL: p TestA/one\n    x_test.go:5: wrong\n"},
			none:     []string{"log", "TestA\n", "fine"},
		},
		{
			name:     "the ends of long words are shown",
			in:       output("p", "TestA", many...) + ended("fail", "p", "TestA") + ended("fail", "p", ""),
			shown:    "FAIL  p  1.2s\n",
			failures: []string{"line 0\n", "line 14\n    ... 10 lines left out ...\n    line 25\n", "line 59\n"},
			none:     []string{"line 15\n"},
		},
		{
			name:     "a test program that dies",
			in:       output("p", "TestA", "panic: oh no", "goroutine 1 [running]:") + ended("fail", "p", ""),
			shown:    "FAIL  p  1.2s\n",
			failures: []string{"p TestA (did not end)", "panic: oh no"},
		},
		{
			name: "a package that does not compile",
			in: `{"ImportPath":"p [p.test]","Action":"build-output","Output":"x.go:1: syntax error\n"}` + "\n" +
				`{"ImportPath":"p [p.test]","Action":"build-fail"}` + "\n" + output("p", "", "FAIL p [build failed]") + ended("fail", "p", ""),
			shown:    "FAIL  p  1.2s\n",
			failures: []string{"x.go:1: syntax error"},
			none:     []string{"said nothing"},
		},
		{
			name:     "a machine that has built nothing yet",
			in:       strings.Repeat("go: downloading example.com/m v1.0.0\n", 60) + "go: no such module\n" + output("p", "TestA", "wrong") + ended("fail", "p", "TestA") + ended("fail", "p", ""),
			shown:    "FAIL  p  1.2s\n",
			failures: []string{"wrong\n", "go: no such module"},
			none:     []string{"downloading"},
		},
		{
			name:     "the go command cannot begin",
			in:       "go: no such module\n",
			failures: []string{"go: no such module"},
		},
		{name: "nothing at all", failures: []string{"no test ran"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			var shown strings.Builder
			ok, err := run(strings.NewReader(tc.in), &shown, filepath.Join(dir, "failures"), filepath.Join(dir, "log"))
			if err != nil || ok != (tc.failures == nil) {
				t.Errorf("ok is %v (%v)", ok, err)
			}
			if shown.String() != tc.shown {
				t.Errorf("shown is %q, want %q", shown.String(), tc.shown)
			}
			text, err := os.ReadFile(filepath.Join(dir, "failures"))
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range tc.failures {
				if !strings.Contains(string(text), want) {
					t.Errorf("the failures lack %q:\n%s", want, text)
				}
			}
			for _, none := range tc.none {
				if strings.Contains(string(text), none) {
					t.Errorf("the failures have %q:\n%s", none, text)
				}
			}
		})
	}
}
