package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What the kernel unpacks is what was put in.
func TestArchive(t *testing.T) {
	from := filepath.Join(t.TempDir(), "from")
	if err := os.WriteFile(from, []byte("12345"), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	a := &archive{w: bufio.NewWriter(&out)}
	a.folder("bin")
	a.file("bin/program", from)
	a.content("order", 0o644, 3, strings.NewReader("a\nb"))
	a.content("TRAILER!!!", 0, 0, strings.NewReader(""))
	if a.err != nil || a.w.Flush() != nil {
		t.Fatal(a.err)
	}
	got, rest := "", out.Bytes()
	for !strings.Contains(got, "TRAILER") {
		var magic string
		var f [13]int
		if _, err := fmt.Sscanf(string(rest[:110]), "%6s%8X%8X%8X%8X%8X%8X%8X%8X%8X%8X%8X%8X%8X", &magic, &f[0], &f[1], &f[2], &f[3], &f[4], &f[5], &f[6], &f[7], &f[8], &f[9], &f[10], &f[11], &f[12]); err != nil || magic != "070701" {
			t.Fatalf("%q: %v", rest[:110], err)
		}
		pad := func(n int) int { return (n + 3) / 4 * 4 }
		name := string(rest[110 : 110+f[11]-1])
		rest = rest[pad(110+f[11]):]
		got += fmt.Sprintf("%s %o %q\n", name, f[1], rest[:f[6]])
		rest = rest[pad(f[6]):]
	}
	want := "bin 40755 \"\"\nbin/program 100755 \"12345\"\norder 100644 \"a\\nb\"\nTRAILER!!! 0 \"\"\n"
	if got != want || len(rest) != 0 {
		t.Errorf("it holds\n%sand %d bytes, want\n%s", got, len(rest), want)
	}
	if _, err := ordered(t.TempDir(), []string{"ext4"}); err == nil {
		t.Error("a folder without a kernel is taken")
	}
}
