package malformed

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// maxPatchDepth is how deep a patch may be nested, and how many steps its paths
	// may have. The library reads what is left of a patch again at each level, so that
	// a deep one would keep a processor busy for minutes. No served kind has half as
	// many levels.
	maxPatchDepth = 64
	// maxBody is the library's own limit of a request's size, in bytes.
	maxBody = 3 << 20
)

// checkPatch refuses patches that would cost too much to apply. It leaves the
// request's body to be read again.
func checkPatch(r *http.Request) error {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	steps := kind == string(types.JSONPatchType)
	if r.Method != http.MethodPatch || err != nil || !steps && kind != string(types.MergePatchType) || r.Body == nil {
		return nil
	}
	// What is larger, or cannot be read, is told by those who read it next.
	raw, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	r.Body = readAgain{io.MultiReader(bytes.NewReader(raw), r.Body), r.Body}
	if err != nil || len(raw) > maxBody {
		return nil
	}
	depth := nesting(raw)
	if steps {
		depth = max(depth, longestPath(raw))
	}
	if depth > maxPatchDepth {
		return apierrors.NewBadRequest(fmt.Sprintf("the patch has %d levels, more than %d", depth, maxPatchDepth))
	}
	return nil
}

// readAgain is a body of which a part was read.
type readAgain struct {
	io.Reader
	io.Closer
}

// nesting counts the levels of objects and lists in JSON text.
func nesting(text []byte) (deepest int) {
	depth, quoted, escaped := 0, false, false
	for _, b := range text {
		switch {
		case escaped:
			escaped = false
		case quoted && b == '\\':
			escaped = true
		case b == '"':
			quoted = !quoted
		case quoted:
		case b == '{' || b == '[':
			depth++
			deepest = max(deepest, depth)
		case b == '}' || b == ']':
			depth--
		}
	}
	return deepest
}

// longestPath counts the steps of the longest path in a JSON patch. What cannot be
// read is refused by those who apply it.
func longestPath(patch []byte) (longest int) {
	var operations []struct{ Path, From string }
	_ = json.Unmarshal(patch, &operations)
	for _, o := range operations {
		longest = max(longest, strings.Count(o.Path, "/"), strings.Count(o.From, "/"))
	}
	return longest
}
