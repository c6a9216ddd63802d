package catalogue

import "testing"

// What a newcomer is given is there.
func TestDefaultsAreInTheCatalogue(t *testing.T) {
	for provider, name := range defaults {
		if _, ok := Find(provider, name); !ok {
			t.Errorf("%s/%s is not in the catalogue", provider, name)
		}
	}
}
