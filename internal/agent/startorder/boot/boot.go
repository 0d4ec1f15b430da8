// Package boot finds out whether the machine has started again since the agent ran last.
package boot

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/everynode/everynode/internal/files/wholefile"
)

// Source is where Linux says which start of the machine this is: random_boot_id in random(4).
const Source = "/proc/sys/kernel/random/boot_id"

// Again reads from source which start of the machine this is, and reports whether the file at path says another, or is
// not there. It then says this one. So it is true once for each start of the machine. What cannot be read or written is
// an error, and false.
func Again(source, path string) (bool, error) {
	content, err := os.ReadFile(source)
	if err != nil {
		return false, fmt.Errorf("read which start of the machine this is: %w", err)
	}
	now := strings.TrimSpace(string(content))
	if now == "" {
		return false, fmt.Errorf("read which start of the machine this is: %s is empty", source)
	}
	before, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("read which start of the machine the agent saw last: %w", err)
	}
	if strings.TrimSpace(string(before)) == now {
		return false, nil
	}
	err = wholefile.Write(path, 0o600, wholefile.Bytes([]byte(now+"\n")))
	if err != nil {
		return false, fmt.Errorf("write down which start of the machine this is: %w", err)
	}
	return true, nil
}
