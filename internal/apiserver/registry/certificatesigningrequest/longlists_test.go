package certificatesigningrequest

import (
	"fmt"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/everynode/everynode/internal/apiserver/enough"
)

// A join token is enough to ask for a certificate. Whatever is wrong with its usages, a list that is too long to be
// told about is not looked through to its end, and no usage is looked for in the list.
func TestManyUsagesAreLookedAtOnce(t *testing.T) {
	const n = 1_000_000
	for _, c := range []struct {
		usage func(i int) string
		last  string
	}{
		{func(i int) string { return fmt.Sprint("u", i) }, `usages[1000]: Unsupported value: "u1000"`},
		{func(int) string { return "client auth" }, `usages[1001]: Duplicate value: "client auth"`},
	} {
		asked := make([]certificatesv1.KeyUsage, n)
		for i := range asked {
			asked[i] = certificatesv1.KeyUsage(c.usage(i))
		}
		errs := validateUsages(asked, field.NewPath("usages"))
		if last := errs[len(errs)-1].Error(); len(errs) != enough.Errors+1 || !strings.HasPrefix(last, c.last) {
			t.Errorf("%d errors, the last is %s; want %d and %s", len(errs), last, enough.Errors+1, c.last)
		}
	}
}
