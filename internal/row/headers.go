package row

import "encoding/json"

// DecodeHeaders decodes headers as stored in the file. It returns nil if text is not a JSON object of strings, since
// another program may have written it.
func DecodeHeaders(text string) (h map[string]string) {
	if text == "" || json.Unmarshal([]byte(text), &h) != nil {
		return nil
	}
	return h
}
