package illness

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Tags has each tag name one image after another.
type Tags struct {
	// Move is how long a tag names one image, on the average. When it moves differs from tag to tag.
	Move metav1.Duration `json:"move"`
}

func (t *Tags) check() error {
	if t != nil && t.Move.Duration < time.Millisecond {
		return errors.New("tags: move is less than 1ms")
	}
	return nil
}

// ImageID is what a node says of an image that a container starts with now: its repository and a digest. An image that
// is named by its digest has that one. It is "" where the plan says nothing of tags. The same plan says the same at the
// same time, also in another process.
func (p *Plan) ImageID(image string, now time.Time) string {
	if p == nil || p.Tags == nil {
		return ""
	}
	if strings.Contains(image, "@") {
		return image
	}
	move := int64(p.Tags.Move.Duration)
	turn := now.UnixNano() / move
	if now.UnixNano()%move < p.moves(image, turn) {
		turn--
	}
	name := image
	if at := strings.LastIndex(image, ":"); at > strings.LastIndex(image, "/") {
		name = image[:at]
	}
	return fmt.Sprintf("%s@sha256:%x", name, sha256.Sum256(fmt.Appendf(nil, "%d %s %d", p.Seed, image, turn)))
}

// moves is when in a turn the tag moves, in nanoseconds from its beginning.
func (p *Plan) moves(image string, turn int64) int64 {
	sum := sha256.Sum256(fmt.Appendf(nil, "moves %d %s %d", p.Seed, image, turn))
	return int64(binary.BigEndian.Uint64(sum[:8]) % uint64(p.Tags.Move.Duration))
}
