package backup

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// magic begins every backup.
const magic = "everynode-backup"

// maxHeader bounds the first line, in bytes.
const maxHeader = 64

// How a backup is sealed.
const (
	sealedAge = "age"
	sealedNot = "plain"
)

// header is the first line of a backup.
type header struct {
	format int
	seal   string
}

func (h header) String() string { return fmt.Sprintf("%s %d %s\n", magic, h.format, h.seal) }

// errNoBackup says that a file is something else.
var errNoBackup = errors.New("this is no backup of everynode: it does not begin with \"" + magic + "\"")

// readHeader reads the first line.
func readHeader(r *bufio.Reader) (header, error) {
	line := make([]byte, 0, maxHeader)
	for len(line) < maxHeader {
		b, err := r.ReadByte()
		if errors.Is(err, io.EOF) {
			return header{}, endOfHeader(string(line))
		}
		if err != nil {
			return header{}, fmt.Errorf("read the backup: %w", err)
		}
		if b == '\n' {
			return parseHeader(string(line))
		}
		line = append(line, b)
	}
	return header{}, errNoBackup
}

func endOfHeader(line string) error {
	switch {
	case line == "":
		return errors.New("the backup is empty")
	case strings.HasPrefix(line, magic), strings.HasPrefix(magic, line):
		return errCutOff
	}
	return errNoBackup
}

func parseHeader(line string) (h header, err error) {
	fields := strings.Split(line, " ")
	if len(fields) < 2 || fields[0] != magic {
		return h, errNoBackup
	}
	h.format, err = strconv.Atoi(fields[1])
	if err != nil || h.format < 1 || strconv.Itoa(h.format) != fields[1] {
		return h, fmt.Errorf("%w: its first line names no format", errAltered)
	}
	if h.format > Format {
		return h, newerError(h.format, "")
	}
	if len(fields) != 3 || fields[2] != sealedAge && fields[2] != sealedNot {
		return h, fmt.Errorf("%w: its first line does not say how it is encrypted", errAltered)
	}
	h.seal = fields[2]
	return h, nil
}
