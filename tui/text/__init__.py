"""Values to cells, lines and exports; the key table. Imports no Textual."""
