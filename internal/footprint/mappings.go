package footprint

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// mapping is a range of addresses of a process.
type mapping struct {
	start, end uintptr
	// readOnly means that it can be read, is not shared, and nobody may write to it.
	readOnly bool
	// file is device and inode; it ends in " 0" for memory of no file.
	file string
	// changed are the kilobytes that differ from the file, such as a debugger's breakpoints.
	changed int64
}

// parse reads what the kernel says in /proc/PID/smaps. There may be thousands of mappings, so it makes little garbage.
func parse(smaps io.Reader) ([]mapping, error) {
	var out []mapping
	lines := bufio.NewScanner(smaps)
	lines.Buffer(nil, 64<<10) // a line ends in a path
	// What was changed and is not in memory now is counted apart.
	changed, away := []byte("Anonymous:"), []byte("Swap:")
	for lines.Scan() {
		line := lines.Bytes()
		switch first, rest, _ := bytes.Cut(line, []byte(" ")); {
		case (bytes.Equal(first, changed) || bytes.Equal(first, away)) && len(out) > 0:
			kb, err := strconv.ParseInt(string(bytes.TrimSuffix(bytes.TrimSpace(rest), []byte(" kB"))), 10, 64)
			if err != nil {
				return nil, fmt.Errorf("size %q: %w", line, err)
			}
			out[len(out)-1].changed += kb
		case !bytes.HasSuffix(first, []byte(":")):
			m, err := parseRange(line, out)
			if err != nil {
				return nil, err
			}
			out = append(out, m)
		}
	}
	return out, lines.Err()
}

// parseRange reads the line that a mapping begins with; before are those that were read already.
func parseRange(line []byte, before []mapping) (mapping, error) {
	fields := bytes.Fields(line)
	if len(fields) < 5 || len(fields[1]) != 4 {
		return mapping{}, fmt.Errorf("unknown line %q", line)
	}
	from, to, _ := bytes.Cut(fields[0], []byte("-"))
	start, err := strconv.ParseUint(string(from), 16, 64)
	if err != nil {
		return mapping{}, fmt.Errorf("addresses %q: %w", line, err)
	}
	end, err := strconv.ParseUint(string(to), 16, 64)
	if err != nil {
		return mapping{}, fmt.Errorf("addresses %q: %w", line, err)
	}
	p := fields[1]
	m := mapping{start: uintptr(start), end: uintptr(end), readOnly: p[0] == 'r' && p[1] == '-' && p[3] == 'p'}
	m.file = string(fields[3]) + " " + string(fields[4])
	if n := len(before); n > 0 && before[n-1].file == m.file {
		m.file = before[n-1].file
	}
	return m, nil
}

// ofProgram are the mappings of the file that the code at the address comes from which can be dropped: they can be read
// again, because nobody may write to them and nobody did.
func ofProgram(all []mapping, code uintptr) []mapping {
	var file string
	for _, m := range all {
		if m.start <= code && code < m.end {
			file = m.file
		}
	}
	var out []mapping
	for _, m := range all {
		if m.file == file && !strings.HasSuffix(file, " 0") && m.readOnly && m.changed == 0 {
			out = append(out, m)
		}
	}
	return out
}
