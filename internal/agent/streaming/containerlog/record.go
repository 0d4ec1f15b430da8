package containerlog

import (
	"bytes"
	"fmt"
	"time"
)

// Stream is one of a container's two outputs.
type Stream string

// The two outputs.
const (
	Stdout Stream = "stdout"
	Stderr Stream = "stderr"
)

// record is one line of a log file. text is part of the line that was parsed, not a copy.
type record struct {
	time    time.Time
	stream  Stream
	partial bool
	text    []byte // without the end of line
}

// parse reads one line, with or without its end.
func parse(line []byte) (record, error) {
	line = bytes.TrimSuffix(line, []byte("\n"))
	stamp, rest, ok := bytes.Cut(line, []byte(" "))
	if !ok {
		return record{}, fmt.Errorf("log line has no timestamp: %.40q", line)
	}
	at, err := time.Parse(time.RFC3339Nano, string(stamp))
	if err != nil {
		return record{}, fmt.Errorf("log line has no timestamp: %w", err)
	}
	stream, rest, ok := bytes.Cut(rest, []byte(" "))
	if !ok || Stream(stream) != Stdout && Stream(stream) != Stderr {
		return record{}, fmt.Errorf("log line is of unknown stream %.20q", stream)
	}
	tags, text, ok := bytes.Cut(rest, []byte(" "))
	if !ok && len(tags) == 0 {
		return record{}, fmt.Errorf("log line has no tag: %.40q", line)
	}
	first, _, _ := bytes.Cut(tags, []byte(":"))
	return record{time: at, stream: Stream(stream), partial: string(first) == "P", text: text}, nil
}
