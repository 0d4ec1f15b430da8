package certificatesigningrequest

import (
	"fmt"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// A join token is enough to ask for a certificate. Looking through the list for each of these usages would take so many steps
// that go test ends it, and shows where it was.
func TestManyUsagesAreLookedAtOnce(t *testing.T) {
	const n = 1_000_000
	asked := make([]certificatesv1.KeyUsage, n)
	for i := range asked {
		asked[i] = certificatesv1.KeyUsage(fmt.Sprint("u", i))
	}
	asked[n-1] = asked[0]
	errs := validateUsages(asked, field.NewPath("usages"))
	if last := errs[len(errs)-1].Error(); len(errs) != n+1 || !strings.HasPrefix(last, fmt.Sprintf(`usages[%d]: Duplicate value: "u0"`, n-1)) {
		t.Errorf("%d errors, the last is %s; want each to be unknown and one to be there twice", len(errs), last)
	}
}
