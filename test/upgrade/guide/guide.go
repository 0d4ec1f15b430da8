// Package guide finds the commands that a guide gives.
package guide

import (
	"errors"
	"fmt"
	"os"
	"strings"
)

// Commands are those that a section of a guide has, each block as it stands there.
func Commands(guide, section string) (blocks []string, err error) {
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
