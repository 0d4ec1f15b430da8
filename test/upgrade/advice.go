package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// commands are those that a section of the guide has, each block as it stands there.
func commands(guide, section string) (blocks []string, err error) {
	content, err := os.ReadFile(guide)
	if err != nil {
		return nil, err
	}
	_, after, found := strings.Cut(string(content), "\n### "+section+"\n")
	if !found {
		return nil, fmt.Errorf("%s has no section %q", guide, section)
	}
	inside, block, over := false, "", false
	for line := range strings.Lines(after) {
		switch {
		case strings.HasPrefix(line, "```"):
			if inside {
				blocks = append(blocks, block)
			}
			inside, block = !inside, ""
		case inside:
			block += line
		default:
			over = strings.HasPrefix(line, "#")
		}
		if over {
			break
		}
	}
	if len(blocks) == 0 {
		return nil, errors.New("no command is in section " + section)
	}
	return blocks, nil
}

// obey runs commands of the guide word for word, as somebody does who has the program in his path.
func (s *stage) obey(section string, block int) error {
	blocks, err := commands(s.p.guide, section)
	if err != nil || block >= len(blocks) {
		return fmt.Errorf("choose block %d of %d: %w", block, len(blocks), err)
	}
	cmd := exec.Command("bash", "-euo", "pipefail", "-c", blocks[block])
	cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(s.program)+":"+os.Getenv("PATH"),
		"KUBECONFIG="+filepath.Join(s.dir, "kubeconfig"))
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("what %q says: %w: %s", section, err, out)
	}
	return nil
}
