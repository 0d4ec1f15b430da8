package guide

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestCommands(t *testing.T) {
	guide := filepath.Join(t.TempDir(), "guide.md")
	text := "# Guide\n\n### Before\n\n```\nnot this\n```\n\n### Back\n\nSo:\n\n```\none\n# two\n```\n\n" +
		"or\n\n```\nthree\n```\n\n## After\n\n```\nnor this\n```\n"
	if err := os.WriteFile(guide, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	blocks, err := Commands(guide, "Back")
	if want := []string{"one\n# two\n", "three\n"}; err != nil || !slices.Equal(blocks, want) {
		t.Errorf("the commands are %q, %v; want %q", blocks, err, want)
	}
	for _, section := range []string{"Nowhere", "Bac"} {
		if blocks, err := Commands(guide, section); err == nil {
			t.Errorf("section %s has %q", section, blocks)
		}
	}
}
