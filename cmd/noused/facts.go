package main

import (
	"noused/internal/model"
	"noused/internal/model/catalogue"
)

// fact is what models.toml says of a model; what it leaves open the catalogue
// says.
type fact struct {
	window, output int64
	images         *bool
	efforts        []string // nil: not said
	price          *catalogue.Price
	source         string
}

// facts are what is known of a model that is asked at that server. A server that
// anybody may run has none: its model may be called like another's.
func (v vendors) facts(c model.Choice, baseURL string) (facts catalogue.Model, known bool) {
	provider := c.Provider
	if at, ok := catalogue.ProviderAt(baseURL); ok {
		provider = at.Name
	} else if provider == "openai" { // its wire is everybody's; a proxy of Anthropic's has Anthropic's models
		provider = ""
	}
	facts, known = catalogue.Find(provider, c.Name)
	if own, ok := v.models[c.Provider+"/"+c.Name]; ok {
		return own.over(facts), true
	}
	return facts, known
}

// over is what the file says, over what is known without it. Of a model that is
// not known it shows images unless the file says otherwise.
func (f fact) over(m catalogue.Model) catalogue.Model {
	if m.ID == "" {
		m.Images = true
	}
	if f.window > 0 {
		m.Window = f.window
	}
	if f.output > 0 {
		m.Output = f.output
	}
	if f.images != nil {
		m.Images = *f.images
	}
	if f.efforts != nil {
		was := m
		m.Efforts = nil
		for _, level := range f.efforts {
			word, ok := was.Word(level)
			if !ok {
				word = level
			}
			m.Efforts = append(m.Efforts, catalogue.Effort{Level: level, Word: word})
		}
	}
	if f.price != nil {
		m.Prices = []catalogue.Price{*f.price}
	}
	m.Source = f.source
	return m
}
